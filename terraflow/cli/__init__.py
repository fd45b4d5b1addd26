"""The command `terraflow`: one file a command group; heavy imports happen inside the command that needs them."""
