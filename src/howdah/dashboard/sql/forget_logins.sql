-- forget_logins: delete expired sessions.

delete from {schema}.login where expires_at < now()
