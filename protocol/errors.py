"""Errors that name who must act. A bug in Headwater itself is an assertion, never one of these."""

from __future__ import annotations


class HeadwaterError(Exception):
    """Base of every error that a user can cause and cure."""


class EventError(HeadwaterError):
    """An event, an event type or a row of a trace is not what it should be: the producer of the events must act."""


class RuleError(HeadwaterError):
    """A rule is wrong: its author must act."""


class ConfigError(HeadwaterError):
    """A file, an option or the machine's set-up is wrong: the operator must act."""
