"""How many processes, cores and bytes, and how much money, traffic takes: what ``ragtrace plan`` says."""
