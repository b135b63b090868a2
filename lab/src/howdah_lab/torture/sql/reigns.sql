-- reigns: every change of the current declaration of the consumer widened.
-- out: id, types, reached (the checkpoint at that moment)

select id, types, reached from {yard}.reign where consumer = 'widened' order by id
