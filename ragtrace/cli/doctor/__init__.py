"""``ragtrace doctor``: is everything that judging needs there, and what does an application send?"""

from ragtrace.cli.doctor.command import doctor
