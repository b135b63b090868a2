-- log_token: let the next token be one that has to be written to the write-ahead log.
--
-- PostgreSQL logs a sequence only every 32 numbers, ahead of time. A crash sets it back only if it forgets that record.
-- So it does when it forgets the next claim. Nothing else changes.

alter sequence {schema}.token increment by 1
