"""`python -m leftfold`: the command line."""

from leftfold.cli.main import main

if __name__ == "__main__":
    main()
