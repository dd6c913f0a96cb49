//! What stands in front of a server: TLS with a good certificate or a bad one, a proxy, or something that breaks off.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, LazyLock};
use std::{io, mem};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

/// The name the good certificate is for.
pub(crate) const HOST: &str = "service.test";

/// How a connection is met.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Meet {
    /// TLS, and behind it the server.
    Tls(Certificate),
    /// A proxy that opens the tunnel, and behind it TLS with a good certificate and the server.
    Tunnel,
    /// A proxy that says this to a CONNECT, and leaves.
    Refusal(&'static str),
    /// TLS that has no version in common with the client.
    NoCommonVersion,
    /// The first bytes are read, then the connection ends in good order.
    Fin,
    /// The first bytes are read, then the connection is reset.
    Rst,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Certificate {
    Good,
    SelfSigned,
    Expired,
    OfAnotherHost,
}

/// A listener in front of a server. It and its connections end when it is dropped.
pub(crate) struct Front {
    addr: SocketAddr,
    connections: Arc<AtomicUsize>,
    _task: JoinSet<()>,
}

impl Front {
    /// Meets the first connection so, and every later one otherwise.
    pub(crate) async fn start(server: SocketAddr, first: Meet, later: Meet) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let (count, mut task) = (connections.clone(), JoinSet::new());
        task.spawn(async move {
            let (mut meet, mut met) = (first, JoinSet::new());
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Relaxed);
                met.spawn(mem::replace(&mut meet, later).play(stream, server));
            }
        });
        Self {
            addr,
            connections,
            _task: task,
        }
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// How many connections it has accepted so far.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Relaxed)
    }
}

impl Meet {
    /// An error is no failure: the connection is over.
    async fn play(self, mut stream: TcpStream, server: SocketAddr) -> io::Result<()> {
        match self {
            Self::Tls(certificate) => join(certificate.acceptor().accept(stream).await?, server).await,
            Self::Tunnel => {
                read_head(&mut stream).await?;
                stream.write_all(b"HTTP/1.1 200 Connected\r\n\r\n").await?;
                join(Certificate::Good.acceptor().accept(stream).await?, server).await
            }
            Self::Refusal(answer) => {
                read_head(&mut stream).await?;
                stream.write_all(answer.as_bytes()).await?;
                stream.shutdown().await
            }
            Self::NoCommonVersion => {
                let _ = stream.read(&mut [0; 8192]).await?;
                // A fatal alert, protocol_version (RFC 8446, section 6).
                stream.write_all(&[21, 3, 3, 0, 2, 2, 70]).await?;
                stream.shutdown().await
            }
            Self::Fin => {
                let _ = stream.read(&mut [0; 8192]).await?;
                stream.shutdown().await
            }
            Self::Rst => {
                let _ = stream.read(&mut [0; 8192]).await?;
                stream.set_zero_linger()
            }
        }
    }
}

async fn join(mut stream: impl AsyncRead + AsyncWrite + Unpin, server: SocketAddr) -> io::Result<()> {
    let mut server = TcpStream::connect(server).await?;
    copy_bidirectional(&mut stream, &mut server).await?;
    Ok(())
}

async fn read_head(stream: &mut TcpStream) -> io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    Ok(())
}

/// Who signs what the clients trust.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    roots: Arc<RootCertStore>,
}

static AUTHORITY: LazyLock<Authority> = LazyLock::new(|| {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new([]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let mut roots = RootCertStore::empty();
    roots.add(params.self_signed(&key).unwrap().der().clone()).unwrap();
    Authority {
        issuer: Issuer::new(params, key),
        roots: Arc::new(roots),
    }
});

impl Certificate {
    fn acceptor(self) -> TlsAcceptor {
        let host = if matches!(self, Self::OfAnotherHost) {
            "another.test"
        } else {
            HOST
        };
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([host.to_owned()]).unwrap();
        if matches!(self, Self::Expired) {
            params.not_before = date_time_ymd(2001, 1, 1);
            params.not_after = date_time_ymd(2002, 1, 1);
        }
        let certificate = match self {
            Self::SelfSigned => params.self_signed(&key),
            _ => params.signed_by(&key, &AUTHORITY.issuer),
        };
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.unwrap().der().clone()], key.into())
            .unwrap();
        TlsAcceptor::from(Arc::new(config))
    }
}

/// A client that trusts the authority of these tests and no other, so that nothing of the system matters.
pub(crate) fn trusting(http: reqwest::ClientBuilder) -> reqwest::ClientBuilder {
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(AUTHORITY.roots.clone())
        .with_no_client_auth();
    http.tls_backend_preconfigured(config)
}
