"""Administration over a client connection: how the command line looks after a broker or a cluster."""
