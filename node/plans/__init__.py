"""The plans that a node takes part in: trees and graphs, from the coordinator's orders to running tasks."""
