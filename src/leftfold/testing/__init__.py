"""For people's own tests: real engines as pytest fixtures, shared by a whole run; `plugin` tells pytest of them."""

from leftfold.testing.apps import AppFactory, TestedApp
from leftfold.testing.cluster import TestCluster

__all__ = ["AppFactory", "TestCluster", "TestedApp"]
