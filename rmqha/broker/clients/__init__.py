"""Who is connected, as producer or consumer of which group; and what the members of a group are told and given."""
