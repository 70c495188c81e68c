//! `leasehold break`: take a name away from all who hold it.

use std::io::{self, IsTerminal as _, Write as _};

use leasehold::engine::View;
use leasehold::{Client, Family, Name, Options};

use crate::args::Break;
use crate::connect::connect;
use crate::exit::{FREE, Failure};
use crate::print::{self, visible};
use crate::report::{self, BrokenReport};

pub(crate) async fn break_(args: &Break) -> Result<u8, Failure> {
    if !args.yes && !io::stdin().is_terminal() {
        return Err(Failure::usage(
            "there is no terminal to ask at; say --yes to break the name without a question",
        ));
    }
    let client = connect(&args.on, Options::new()).await?;
    let ended = break_on(&client, args).await;
    client.close().await.ok();
    ended
}

async fn break_on(client: &Client, args: &Break) -> Result<u8, Failure> {
    let shown = visible(&args.name);
    let mut found = report::look(client, args.family.map(Family::from), &args.name).await?;
    found.retain(|(_, view)| !view.claims.is_empty());
    let family = match found.as_slice() {
        [] => {
            if args.json {
                print::json(&[(); 0])?;
            }
            print::complain(&format!("nobody holds `{shown}`"));
            return Ok(FREE);
        }
        [(name, _)] => name.family(),
        _ => {
            let families: Vec<&str> = found.iter().map(|(name, _)| name.family().word()).collect();
            return Err(Failure::usage(format!(
                "`{shown}` is held as {}; say which with --family",
                families.join(" and as ")
            )));
        }
    };
    if !args.yes && !confirmed(&found)? {
        print::complain("nothing was broken");
        return Ok(FREE);
    }
    let broken = client.break_claims(family, &args.name).await?;
    if args.json {
        let broken: Vec<_> =
            broken.iter().map(|claim| BrokenReport::new(family, &args.name, claim)).collect();
        print::json(&broken)?;
    } else {
        let mut out = anstream::stdout().lock();
        for claim in &broken {
            writeln!(
                out,
                "broke {family} `{shown}`: it was held by {}, token {}",
                report::who(&claim.holder),
                claim.token
            )?;
        }
    }
    // They may have let go while the question was on the screen.
    Ok(if broken.is_empty() { FREE } else { 0 })
}

/// Asks at the terminal. The question goes to stderr: stdout is for what was done.
fn confirmed(found: &[(Name, View)]) -> io::Result<bool> {
    let mut err = anstream::stderr().lock();
    for (name, view) in found {
        for held in &view.claims {
            writeln!(
                err,
                "{} `{}` is held by {}",
                name.family(),
                visible(name.as_str()),
                report::describe(held)
            )?;
        }
    }
    write!(err, "They go on until they find out. Take it away? [y/N] ")?;
    err.flush()?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
