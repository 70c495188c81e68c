//! The scripts: constant texts, called by their hash.

use std::sync::LazyLock;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, ErrorKind, FromRedisValue, RedisResult, ServerErrorKind, ToRedisArgs};

/// A text, and the hash by which a server that has seen it knows it.
pub(super) struct Script {
    text: &'static str,
    hash: String,
}

impl Script {
    fn new(text: &'static str) -> Script {
        Script { text, hash: redis::Script::new(text).get_hash().to_owned() }
    }

    /// A call of this script, without keys and arguments yet.
    pub(super) fn prepare(&'static self) -> Invocation {
        Invocation { script: self, keys: Vec::new(), args: Vec::new() }
    }
}

/// A call of a script.
pub(super) struct Invocation {
    script: &'static Script,
    keys: Vec<Vec<u8>>,
    args: Vec<Vec<u8>>,
}

impl Invocation {
    pub(super) fn key(&mut self, key: impl ToRedisArgs) -> &mut Invocation {
        key.write_redis_args(&mut self.keys);
        self
    }

    pub(super) fn arg(&mut self, arg: impl ToRedisArgs) -> &mut Invocation {
        arg.write_redis_args(&mut self.args);
        self
    }

    pub(super) async fn call<T: FromRedisValue>(
        &self,
        connection: &mut MultiplexedConnection,
    ) -> RedisResult<T> {
        let answer = self.command("EVALSHA", &self.script.hash).query_async(connection).await;
        match answer {
            // With its whole text, a server can not say that it does not know the script, however often it is made to
            // forget; and one that has just been started costs one round trip more, not two.
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                self.command("EVAL", self.script.text).query_async(connection).await
            }
            answer => answer,
        }
    }

    fn command(&self, verb: &str, script: &str) -> Cmd {
        let sizes = self.keys.iter().chain(&self.args).map(Vec::len).sum::<usize>();
        let mut command =
            Cmd::with_capacity(3 + self.keys.len() + self.args.len(), sizes + script.len() + 16);
        command.arg(verb).arg(script).arg(self.keys.len()).arg(&*self.keys).arg(&*self.args);
        command
    }
}

/// Every script that this engine runs.
pub(super) struct Scripts {
    pub(super) ask: Script,
    pub(super) release: Script,
    pub(super) alter: Script,
    pub(super) resize: Script,
    pub(super) break_claims: Script,
    pub(super) look: Script,
    pub(super) renew: Script,
    pub(super) mend: Script,
    pub(super) note: Script,
    pub(super) swap: Script,
}

/// A script that changes a name: what is usual, then the rules, then what was asked.
macro_rules! by_the_rules {
    ($($file:literal),+) => {
        Script::new(concat!($(include_str!($file)),+))
    };
}

pub(super) static SCRIPTS: LazyLock<Scripts> = LazyLock::new(|| Scripts {
    ask: by_the_rules!("ask_head.lua", "rules.lua", "ask.lua"),
    release: by_the_rules!("release_head.lua", "full_memory.lua", "rules.lua", "release.lua"),
    alter: by_the_rules!("rules.lua", "alter.lua"),
    resize: by_the_rules!("rules.lua", "resize.lua"),
    break_claims: by_the_rules!("full_memory.lua", "rules.lua", "break.lua"),
    look: by_the_rules!("look_head.lua", "full_memory.lua", "rules.lua", "look.lua"),
    renew: Script::new(include_str!("renew.lua")),
    mend: Script::new(include_str!("mend.lua")),
    note: Script::new(include_str!("note.lua")),
    swap: Script::new(include_str!("swap.lua")),
});
