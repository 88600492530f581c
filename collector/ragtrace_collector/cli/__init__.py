"""The collector's commands: `ragtrace.cli.command_table` names them."""
