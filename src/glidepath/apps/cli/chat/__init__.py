"""The full-screen chat: a conversation, its slash commands, and the screen around them."""
