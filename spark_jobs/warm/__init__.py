"""One import per executor, shared by its slots and kept between searches."""
