//! Scripts: constant texts, called by their hash.

use redis::aio::MultiplexedConnection;
use redis::{
    Arg, Cmd, ErrorKind, FromRedisValue, Pipeline, RedisError, RedisResult, ServerErrorKind, ToRedisArgs,
    Value, from_redis_value,
};

/// A text, and the hash by which a server that has seen it knows it.
pub(crate) struct Script {
    text: &'static str,
    hash: String,
}

impl Script {
    pub(crate) fn new(text: &'static str) -> Script {
        Script { text, hash: redis::Script::new(text).get_hash().to_owned() }
    }

    /// A call of this script on some keys, without arguments yet.
    pub(crate) fn on(&'static self, keys: &[impl AsRef<str> + ToRedisArgs]) -> Invocation {
        // With room for the usual arguments: growing step by step costs more than the whole call.
        let size = self.hash.len() + keys.iter().map(|key| key.as_ref().len()).sum::<usize>() + 256;
        let mut command = Cmd::with_capacity(keys.len() + 10, size);
        command.arg("EVALSHA").arg(&self.hash).arg(keys.len()).arg(keys);
        Invocation { script: self, command, wakes: false }
    }
}

/// True if a server does not know the script that it was asked to run.
pub(crate) fn is_unknown(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

/// A call of a script.
pub(crate) struct Invocation {
    script: &'static Script,
    command: Cmd,
    wakes: bool,
}

impl Invocation {
    pub(crate) fn arg(mut self, arg: impl ToRedisArgs) -> Invocation {
        self.command.arg(arg);
        self
    }

    /// A call that is likely to send a message to another client, which gets it before we get the
    /// answer.
    ///
    /// A server writes to its clients last come, first served. A client that has a reply already
    /// when the script runs comes after those that get one from it. So the next holder of a lock
    /// need not wait until the last one has read its answer.
    pub(crate) fn waking(self, wakes: bool) -> Invocation {
        Invocation { wakes, ..self }
    }

    /// Calls the script by its hash, and by its text if the server does not know it.
    pub(crate) async fn call<T: FromRedisValue>(
        &self,
        connection: &mut MultiplexedConnection,
    ) -> RedisResult<T> {
        let answer = match self.wakes {
            true => self.call_after_ping(connection).await,
            false => self.call_by_hash(connection).await,
        };
        match answer {
            Err(error) if is_unknown(&error) => Box::pin(self.call_by_text(connection)).await,
            answer => answer,
        }
    }

    /// Calls the script by its hash alone: an error if the server does not know it.
    pub(crate) async fn call_by_hash<T: FromRedisValue>(
        &self,
        connection: &mut MultiplexedConnection,
    ) -> RedisResult<T> {
        let answer = connection.send_packed_command(&self.command).await.and_then(Value::extract_error);
        Ok(from_redis_value(answer?)?)
    }

    /// Calls the script by its whole text, as one command. However often a server is made to forget
    /// scripts, it knows this one.
    pub(crate) async fn call_by_text<T: FromRedisValue>(
        &self,
        connection: &mut MultiplexedConnection,
    ) -> RedisResult<T> {
        let mut command = redis::cmd("EVAL");
        command.arg(self.script.text);
        for word in self.command.args_iter().skip(2) {
            if let Arg::Simple(word) = word {
                command.arg(word);
            }
        }
        let answer = connection.send_packed_command(&command).await.and_then(Value::extract_error);
        Ok(from_redis_value(answer?)?)
    }

    async fn call_after_ping<T: FromRedisValue>(
        &self,
        connection: &mut MultiplexedConnection,
    ) -> RedisResult<T> {
        let mut commands = Pipeline::with_capacity(2);
        commands.add_command(redis::cmd("PING"));
        commands.add_command(self.command.clone());
        let answers = connection.send_packed_commands(&commands, 1, 1).await;
        let answer = answers.and_then(|mut answers| answers.pop().unwrap_or(Value::Nil).extract_error());
        Ok(from_redis_value(answer?)?)
    }
}
