"""`python -m angarium`: the command line."""
from angarium.cli.main import main

main()
