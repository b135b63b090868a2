"""Tasks whose work is done elsewhere: by a program, or by a companion on the same machine."""
