"""Who calls: application keys. Users, roles and sessions come with the console."""
