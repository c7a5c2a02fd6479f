"""What people have written down for agents: instructions in AGENTS.md, commands in Markdown files.

Owns: which files count for a session and in which order, how much of them, what a command's file
says and what it comes to with its arguments, and when they are looked at again.

Does not know: the log, the turn, the model, ACP, or what becomes of what was found.

Invariants: a file that cannot be used is named with a reason and hides no other. No file of a
project leads out of it by a link, is waited for (a pipe), or is read beyond its bound. What is
found changes between prompts alone, so that the text before a conversation, which providers cache,
stays what it is while the files do. Nothing here writes.

Commands of other agents (``.claude/commands``) are not taken by themselves: their files ask for
what only that agent does (a shell line, its own tools). A link inside the project takes them.
"""
