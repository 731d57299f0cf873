"""`python3 -m gpusched`: the command gpusched."""

from gpusched import become

if __name__ == "__main__":
    become("compat", "gpusched")
