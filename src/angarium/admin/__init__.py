"""Administration over a client connection: the only way in for the command line and the console."""
