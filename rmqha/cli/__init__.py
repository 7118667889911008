"""The command line, one file a group of commands; heavy parts are imported only when used."""
