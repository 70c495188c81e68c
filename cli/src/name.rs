//! Names, as they are typed.

use std::ffi::OsString;

use crate::print::visible;

/// Checks a name that was typed. How long it may be is for the library to say.
pub(crate) fn parse(typed: OsString) -> Result<String, String> {
    match typed.into_string() {
        Ok(name) if name.is_empty() => {
            Err("the name is empty; is it a shell variable that is not set?".into())
        }
        Ok(name) => Ok(name),
        Err(typed) => Err(format!(
            "the name is not UTF-8, and others could not write it the same way; encode it (it reads `{}`)",
            visible(&typed.to_string_lossy())
        )),
    }
}
