"""A page on this machine to look inside an agent (`baddr explore`). `server` needs the extra `explore`."""
