"""Programs that start one command as many ranks: Slurm's srun, MPI's mpirun, horovodrun.

Their ranks may be on other machines, and have their number under a name of their own, not as RANK.
"""
