"""`python -m howdah` is `howdah`."""

from howdah.cli import main

if __name__ == "__main__":
    main(prog_name="howdah")
