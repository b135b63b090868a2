-- forget_logins: those that are over.

delete from {schema}.login where expires_at < now()
