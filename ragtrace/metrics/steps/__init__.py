"""The judge steps that metrics share: one file each."""

from typing import TYPE_CHECKING

from ragtrace import _moved

if not TYPE_CHECKING:
    __getattr__ = _moved.old_names(__name__)
