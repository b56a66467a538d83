//! Certificates of a job.

use super::support::{command, ok};
use std::path::Path;

/// Certificates in a folder, and the options that use them; none, with a message, where
/// they cannot be made.
pub(crate) fn certificates(dir: &Path) -> Option<&'static str> {
    let openssl = |line: &str| command(dir, "openssl", line).output();
    let authority =
        "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=job -keyout ca.key -out ca.pem";
    if !openssl(authority).is_ok_and(|o| o.status.success()) {
        eprintln!("skipped: there is no `openssl` command to make certificates with");
        return None;
    }
    ok(openssl("req -newkey rsa:2048 -nodes -subj /CN=me -keyout me.key -out me.csr").unwrap());
    ok(openssl(
        "x509 -req -in me.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -out me.pem",
    )
    .unwrap());
    Some("--tls-cert me.pem --tls-key me.key --tls-ca ca.pem")
}
