"""The real runtime, DeepSeek Harness as a process, and the plugin that we put into it."""
