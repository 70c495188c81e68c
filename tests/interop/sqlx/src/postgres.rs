//! The shop in PostgreSQL.

#[path = "shop.rs"]
mod shop;

type Pool = sqlx::PgPool;
type Options = sqlx::postgres::PgPoolOptions;

pub(crate) use shop::serve;
