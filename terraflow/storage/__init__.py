"""Where durable state lives: the store port's verbs in a database's own SQL."""
