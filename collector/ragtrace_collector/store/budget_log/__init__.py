"""One budget for many processes: reservations are records of a log, which all decide by the same rule."""
