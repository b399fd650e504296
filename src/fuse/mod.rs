//! The only place with fuser's types.
