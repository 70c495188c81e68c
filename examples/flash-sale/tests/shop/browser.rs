//! A page in a headless Chromium, driven by `chromedriver` over HTTP (W3C WebDriver).

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::http::Connection;
use crate::{Result, servers};

/// Dropped, the browser ends.
pub(crate) struct Browser {
    driver: Child,
    port: u16,
    session: String,
    /// Its profile, and whatever else it writes.
    _home: TempDir,
}

impl Drop for Browser {
    fn drop(&mut self) {
        // A driver that is killed leaves its browser behind.
        let end = || -> std::io::Result<()> {
            let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
            stream.set_read_timeout(Some(Duration::from_secs(10)))?;
            let request = format!("DELETE /session/{} HTTP/1.1\r\nHost: localhost\r\n", self.session);
            stream.write_all(format!("{request}Connection: close\r\n\r\n").as_bytes())?;
            stream.read_to_end(&mut Vec::new()).map(drop)
        };
        end().ok();
        self.driver.kill().ok();
        self.driver.wait().ok();
    }
}

impl Browser {
    /// A browser of its own that shows a page.
    pub(crate) async fn open(url: &str) -> Result<Browser> {
        let home = tempfile::tempdir()?;
        let mut driver = servers::spawn("chromedriver", |command| {
            command.arg("--port=0").env("HOME", home.path()).env("TMPDIR", home.path());
            command.stdout(Stdio::piped()).stderr(Stdio::null());
        })?;
        let mut lines = BufReader::new(driver.stdout.take().ok_or("no output")?).lines();
        let port = loop {
            let line = lines.next().ok_or("chromedriver has ended")??;
            if let Some(rest) = line.split("successfully on port ").nth(1) {
                break rest.trim_end_matches('.').parse()?;
            }
        };
        let mut browser = Browser { driver, port, session: String::new(), _home: home };
        let profile = browser._home.path().join("profile");
        let options = json!({ "args": [
            "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--disable-sync",
            "--disable-dev-shm-usage", "--window-size=1180,1000",
            format!("--user-data-dir={}", profile.display()),
        ]});
        let wanted = json!({ "capabilities": { "alwaysMatch": { "goog:chromeOptions": options } } });
        let session = browser.ask("POST", "/session", &wanted).await?;
        browser.session = session["sessionId"].as_str().ok_or("no session")?.to_owned();
        browser.command("url", &json!({ "url": url })).await?;
        Ok(browser)
    }

    async fn ask(&self, method: &str, path: &str, body: &Value) -> Result<Value> {
        let mut connection = Connection::open(([127, 0, 0, 1], self.port).into()).await?;
        let fields = "Content-Type: application/json\r\nConnection: close\r\n";
        let response = connection.send(method, path, fields, &body.to_string()).await?;
        let mut answer: Value = serde_json::from_slice(&response.body)?;
        if response.status != 200 {
            return Err(format!("{method} {path}: {answer}").into());
        }
        Ok(answer["value"].take())
    }

    async fn command(&self, command: &str, body: &Value) -> Result<Value> {
        self.ask("POST", &format!("/session/{}/{command}", self.session), body).await
    }

    /// What a script in the page returns.
    pub(crate) async fn run(&self, script: &str) -> Result<Value> {
        self.command("execute/sync", &json!({ "script": script, "args": [] })).await
    }

    /// The text of an element, as it is shown.
    pub(crate) async fn text(&self, id: &str) -> Result<String> {
        let text = self.run(&format!("return document.getElementById('{id}').innerText")).await?;
        Ok(text.as_str().ok_or_else(|| format!("{id} is not there"))?.to_owned())
    }

    /// A number that the page shows.
    pub(crate) async fn number(&self, id: &str) -> Result<u64> {
        let text = self.text(id).await?;
        Ok(text.replace(',', "").parse().map_err(|_| format!("{id} shows `{text}`"))?)
    }

    /// Clicks on an element, as a person does: it must be there and be seen.
    pub(crate) async fn click(&self, id: &str) -> Result<()> {
        let found = json!({ "using": "css selector", "value": format!("#{id}") });
        let element = self.command("element", &found).await?;
        let element = element.as_object().and_then(|names| names.values().next()).and_then(Value::as_str);
        let element = element.ok_or_else(|| format!("{id} is not there"))?;
        self.command(&format!("element/{element}/click"), &json!({})).await?;
        Ok(())
    }

    pub(crate) async fn resize(&self, width: u32, height: u32) -> Result<()> {
        self.command("window/rect", &json!({ "width": width, "height": height })).await?;
        Ok(())
    }
}
