"""`python -m warpsmith` is the command `warpsmith`."""

from warpsmith.app.entry import main

if __name__ == "__main__":
    main()
