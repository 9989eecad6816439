"""`python -m warpsmith` is the command `warpsmith`."""

from warpsmith.app.cli import main

if __name__ == "__main__":
    main()
