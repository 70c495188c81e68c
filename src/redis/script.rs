//! Scripts: constant texts, called by their hash.

use redis::aio::MultiplexedConnection;
use redis::{
    Arg, Cmd, ErrorKind, FromRedisValue, Pipeline, RedisResult, ServerErrorKind, ToRedisArgs, Value,
    from_redis_value,
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
    pub(crate) fn on(&'static self, keys: &[&str]) -> Invocation {
        // And room for the arguments that most have: to grow step by step costs more than all the rest of a call.
        let size = self.hash.len() + keys.iter().map(|key| key.len()).sum::<usize>() + 256;
        let mut command = Cmd::with_capacity(keys.len() + 10, size);
        command.arg("EVALSHA").arg(&self.hash).arg(keys.len()).arg(keys);
        Invocation { script: self, command }
    }
}

/// A call of a script.
pub(crate) struct Invocation {
    script: &'static Script,
    command: Cmd,
}

impl Invocation {
    pub(crate) fn arg(&mut self, arg: impl ToRedisArgs) -> &mut Invocation {
        self.command.arg(arg);
        self
    }

    pub(crate) async fn call<T: FromRedisValue>(
        &self,
        connection: &mut MultiplexedConnection,
    ) -> RedisResult<T> {
        let answer = connection.send_packed_command(&self.command).await.and_then(Value::extract_error);
        self.read(connection, answer).await
    }

    /// The same with the whole text, as one command and no other.
    pub(crate) async fn call_by_text<T: FromRedisValue>(
        &self,
        connection: &mut MultiplexedConnection,
    ) -> RedisResult<T> {
        let command = self.with_text();
        let answer = connection.send_packed_command(&command).await.and_then(Value::extract_error);
        Ok(from_redis_value(answer?)?)
    }

    /// The same, for a script that is likely to tell another client something: that client hears of it before we do.
    ///
    /// A server writes to its clients last come, first served. Who has an answer already when the script runs comes after whoever
    /// gets one from it, and the next holder of a lock need not wait until the last one has read that it has it no more.
    pub(crate) async fn call_after_others<T: FromRedisValue>(
        &self,
        connection: &mut MultiplexedConnection,
    ) -> RedisResult<T> {
        let mut commands = Pipeline::with_capacity(2);
        commands.add_command(redis::cmd("PING"));
        commands.add_command(self.command.clone());
        let answers = connection.send_packed_commands(&commands, 1, 1).await;
        let answer = answers.and_then(|mut answers| answers.pop().unwrap_or(Value::Nil).extract_error());
        self.read(connection, answer).await
    }

    async fn read<T: FromRedisValue>(
        &self,
        connection: &mut MultiplexedConnection,
        answer: RedisResult<Value>,
    ) -> RedisResult<T> {
        let answer = match answer {
            // With its whole text, a server can not say that it does not know the script, however often it is made to
            // forget; and one that has just been started costs one round trip more, not two.
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                let command = self.with_text();
                Box::pin(connection.send_packed_command(&command)).await.and_then(Value::extract_error)
            }
            answer => answer,
        };
        Ok(from_redis_value(answer?)?)
    }

    /// The same call for a server that does not know the script.
    fn with_text(&self) -> Cmd {
        let mut command = redis::cmd("EVAL");
        command.arg(self.script.text);
        for word in self.command.args_iter().skip(2) {
            if let Arg::Simple(word) = word {
                command.arg(word);
            }
        }
        command
    }
}
