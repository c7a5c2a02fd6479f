"""acp_bridge: work with an agent harness from any editor that speaks ACP."""

__version__ = "0.1.0"
