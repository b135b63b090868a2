-- taken: is somebody here already?
-- out: taken

select to_regnamespace({'yard'}) is not null or to_regnamespace({'schema'}) is not null
