"""`python3 -m gpusched.simjob`: a stand-in for a GPU program."""

from gpusched import become

if __name__ == "__main__":
    become("simjob")
