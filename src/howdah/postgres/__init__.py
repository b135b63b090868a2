"""Talking to PostgreSQL: connections, statements, migrations, wake-ups, and a server of one's own."""
