use super::*;

const SYNTAX: Syntax = Syntax {
    engine: "engine",
    example: "engine://HOST",
    port: 77,
    login: LoginPlace::First,
    options: &["table=NAME", "wait=TIME", "raw"],
};
const EACH: Syntax = Syntax { login: LoginPlace::Each, ..SYNTAX };
const SOCKET: Syntax = Syntax { login: LoginPlace::Options, ..SYNTAX };

fn hosts(text: &str, syntax: &Syntax) -> Vec<String> {
    let url = Url::read(text, syntax).unwrap_or_else(|error| panic!("{text}: {error}"));
    url.hosts.iter().map(ToString::to_string).collect()
}

/// User and password of each host.
fn logins(text: &str, syntax: &Syntax) -> Vec<(String, String)> {
    let url = Url::read(text, syntax).unwrap_or_else(|error| panic!("{text}: {error}"));
    let login = |host: &Host| {
        let Login { user, password } = url.login_of(host);
        let password = password.as_ref().map(Secret::reveal).unwrap_or_default();
        (user.clone().unwrap_or_default(), password.to_owned())
    };
    url.hosts.iter().map(login).collect()
}

fn refused(text: &str) -> String {
    let read = Url::read(text, &SYNTAX).and_then(|url| {
        for option in url.options()? {
            match (option.name, option.value.as_str()) {
                ("table", _) | ("raw", "") => {}
                ("wait", _) => drop(option.duration(Duration::from_secs(1)..=Duration::from_secs(9))?),
                _ => return Err(option.wrong()),
            }
        }
        Ok(())
    });
    read.expect_err(text).to_string()
}

#[test]
fn hosts_have_ports_and_addresses_have_brackets() {
    assert_eq!(hosts("engine://a,b:5,10.0.0.7", &SYNTAX), ["a:77", "b:5", "10.0.0.7:77"]);
    assert_eq!(hosts("engine://[::1],[fe80:0::1]:5/x", &SYNTAX), ["[::1]:77", "[fe80::1]:5"]);
    assert_eq!(Url::read("engine://[::1]", &SYNTAX).expect("a URL").hosts[0].name, "::1");
    assert_eq!(hosts("engine://a:,,b", &SYNTAX), ["a:77", "b:77"]);
    assert!(hosts("engine:///x", &SYNTAX).is_empty());
    for wrong in [
        "engine://a:x",
        "engine://a:99999",
        "engine://:5",
        "engine://[::1",
        "engine://[::x]",
        "engine://a b",
        "engine://0.0.0.0",
        "engine://[::]",
        "engine://a#b",
        "engine:a",
    ] {
        assert!(refused(wrong).contains("is not the URL of a server"), "{wrong}");
    }
}

#[test]
fn logins_are_decoded_and_shared() {
    let pair = |user: &str, password: &str| (user.to_owned(), password.to_owned());
    let all = [pair("u", "p"), pair("u", "p")];
    assert_eq!(logins("engine://u:p@a,b", &SYNTAX), all);
    assert_eq!(logins("engine://u:p@a,b", &EACH), all);
    assert_eq!(logins("engine://a,v:q@b,c", &EACH), [pair("", ""), pair("v", "q"), pair("", "")]);
    assert_eq!(logins("engine://u%40x:%2F%3f%23%2C%40%25@a", &SYNTAX), [pair("u@x", "/?#,@%")]);
    // What can not be taken for anything else need not be encoded.
    assert_eq!(logins("engine://u:a:b,c@d%@a", &SYNTAX), [pair("u", "a:b,c@d%")]);
    assert_eq!(logins("engine://:p@a", &SYNTAX), [pair("", "p")]);
    // A server may be named in the options.
    let url = Url::read("engine://u@/x", &SYNTAX).expect("a URL");
    assert_eq!((url.login.user.as_deref(), url.hosts.len()), (Some("u"), 0));
    assert!(refused("engine://u:%ff@a").contains("the password is not UTF-8"));
}

#[test]
fn paths_are_cut_and_decoded() {
    let path = |text: &str, syntax: &Syntax| Url::read(text, syntax).expect("a URL").path;
    assert_eq!(path("engine://a/x/y%2Fz/", &SYNTAX), ["x", "y/z"]);
    assert!(path("engine://a/", &SYNTAX).is_empty());
    assert_eq!(path("engine:///run/s@x.sock?raw", &SOCKET), ["run", "s@x.sock"]);
    assert!(Url::read("engine://u:secret", &SOCKET).is_err());
}

#[test]
fn options_that_are_wrong_are_named_with_what_was_meant() {
    let url = Url::read("engine://a?table=a%26b+c&raw&&table=d@e", &SYNTAX);
    assert!(url.is_err(), "a `@` without a login may be a part of one");
    let url = Url::read("engine://u@a?table=a%26b+c&raw&&table=d@e", &SYNTAX).expect("a URL");
    let options = url.options().expect("options");
    let options: Vec<_> = options.iter().map(|option| (option.name, option.value.as_str())).collect();
    assert_eq!(options, [("table", "a&b+c"), ("raw", ""), ("table", "d@e")]);

    for (url, words) in [
        ("engine://a?speed=9", "no option `speed`; there are `table=NAME`, `wait=TIME`, `raw`"),
        ("engine://a?tabel=9", "no option `tabel`; did you mean `table`?"),
        ("engine://a?rwa", "does not know an option of the URL; did you mean `raw`?"),
        ("engine://a?raw=9", "does not understand `raw=9`"),
        ("engine://u:secret@a?raw=secret", "does not understand the value of `raw`"),
        ("engine://u:secret@a?tabel=secret", "does not know an option of the URL; did you mean `table`?"),
        ("engine://a?wait=soon", "`wait=soon`: this is not a duration"),
        ("engine://a?wait=10", "`wait=10`: it must be from 1s to 9s"),
        ("engine://u:secret@a?wait=1secret", "the option `wait` needs a duration from 1s to 9s"),
    ] {
        let error = refused(url);
        assert!(error.contains(words) && !error.contains("secret"), "{url}: {error}");
    }
}
