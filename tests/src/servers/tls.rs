//! TLS before a server that has none, with a certificate that no machine trusts by itself.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use openssl::pkey::PKey;
use openssl::ssl::{SslAcceptor, SslMethod, SslStream};
use openssl::x509::X509;
use tempfile::NamedTempFile;

use super::certificates::Authority;

/// A listener of TLS that hands GETs on to a plain server. Its threads end with the test process.
#[derive(Debug)]
pub struct TlsFront {
    port: u16,
    authority: NamedTempFile,
}

impl TlsFront {
    /// One before the server at `http://HOST:PORT`, whatever path follows.
    ///
    /// # Panics
    /// When it can't listen, or its certificate can't be made.
    #[track_caller]
    pub fn before(url: &str) -> Self {
        let rest = url.strip_prefix("http://").expect("a plain address");
        let server = rest.split('/').next().expect("a host").to_owned();
        let authority = Authority::new("tidegate tests").expect("an authority can be made");
        let issued = authority.issue().expect("it can sign");
        let mut acceptor =
            SslAcceptor::mozilla_intermediate_v5(SslMethod::tls_server()).expect("OpenSSL works");
        let key = PKey::private_key_from_pem(&issued).expect("it holds a key");
        let certificate = X509::from_pem(&issued).expect("it holds a certificate");
        acceptor.set_private_key(&key).expect("the key can be used");
        acceptor.set_certificate(&certificate).expect("the certificate can be used");
        let acceptor = Arc::new(acceptor.build());
        let mut file = NamedTempFile::new().expect("a temporary file can be made");
        file.write_all(&authority.pem().expect("it has a certificate")).expect("it can be written");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        thread::spawn(move || {
            for connection in listener.incoming().map_while(Result::ok) {
                let (acceptor, server) = (acceptor.clone(), server.clone());
                // A client that does not like the certificate, or speaks no TLS, just goes.
                thread::spawn(move || {
                    acceptor.accept(connection).ok().and_then(|stream| hand_on(stream, &server).ok())
                });
            }
        });
        Self { port, authority: file }
    }

    /// Its port, at 127.0.0.1. That address, and no name, stands in its certificate.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The file with the authority that signed its certificate.
    pub fn authority(&self) -> String {
        self.authority.path().display().to_string()
    }
}

/// One request without a body, and the whole answer.
fn hand_on(mut client: SslStream<TcpStream>, server: &str) -> std::io::Result<()> {
    let mut request = Vec::new();
    let mut byte = [0];
    while !request.ends_with(b"\r\n\r\n") {
        client.read_exact(&mut byte)?;
        request.push(byte[0]);
    }
    request.truncate(request.len() - 2);
    request.extend(b"connection: close\r\n\r\n");
    let mut behind = TcpStream::connect(server)?;
    behind.write_all(&request)?;
    let mut answer = Vec::new();
    behind.read_to_end(&mut answer)?;
    client.write_all(&answer)?;
    client.shutdown().map(drop).map_err(std::io::Error::other)
}
