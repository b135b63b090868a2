"""Ways a handler can run besides the event loop and threads."""
