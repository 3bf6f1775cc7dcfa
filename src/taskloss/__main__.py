"""The command line as ``python -m taskloss``."""

from taskloss.cli import main

if __name__ == "__main__":
    main()
