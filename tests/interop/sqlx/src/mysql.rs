//! The shop in MySQL or MariaDB.

#[path = "shop.rs"]
mod shop;

type Pool = sqlx::MySqlPool;
type Options = sqlx::mysql::MySqlPoolOptions;

pub(crate) use shop::serve;
