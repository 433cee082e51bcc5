"""The log as a model, for unit tests: `Log` runs declared consumers in memory, with a crash at any step."""

from leftfold.testing.log.crashes import STEPS, random_crashes
from leftfold.testing.log.database import InMemoryDatabase
from leftfold.testing.log.model import Log
from leftfold.testing.log.outcome import Consumed

__all__ = ["STEPS", "Consumed", "InMemoryDatabase", "Log", "random_crashes"]
