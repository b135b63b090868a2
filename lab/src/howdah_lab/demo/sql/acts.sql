-- acts: what people did on the dashboard that changes the books; to pause, to resume and to drain does not.

select count(*) from {schema}.audit where via = 'dashboard' and verb not in ('pause', 'resume', 'drain')
