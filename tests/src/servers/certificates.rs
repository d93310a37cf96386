//! Certificates for one test run: an authority of its own, and what it signs.

use openssl::asn1::Asn1Time;
use openssl::bn::{BigNum, MsbOption};
use openssl::ec::{EcGroup, EcKey};
use openssl::error::ErrorStack;
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{PKey, Private};
use openssl::x509::extension::{BasicConstraints, KeyUsage, SubjectAlternativeName};
use openssl::x509::{X509, X509Builder, X509Name};

/// A certificate authority.
pub(super) struct Authority {
    key: PKey<Private>,
    certificate: X509,
}

impl Authority {
    pub(super) fn new(name: &str) -> Result<Self, ErrorStack> {
        let key = new_key()?;
        let mut builder = certificate(name, &key)?;
        builder.set_issuer_name(named(name)?.as_ref())?;
        builder.append_extension(BasicConstraints::new().critical().ca().build()?)?;
        builder.append_extension(KeyUsage::new().critical().key_cert_sign().crl_sign().build()?)?;
        builder.sign(&key, MessageDigest::sha256())?;
        Ok(Self { key, certificate: builder.build() })
    }

    /// Its certificate, as PEM.
    pub(super) fn pem(&self) -> Result<Vec<u8>, ErrorStack> {
        self.certificate.to_pem()
    }

    /// A key and a certificate of it for 127.0.0.1, as one PEM: what Kafka takes for a key store.
    pub(super) fn issue(&self) -> Result<Vec<u8>, ErrorStack> {
        let key = new_key()?;
        let mut builder = certificate("broker", &key)?;
        builder.set_issuer_name(self.certificate.subject_name())?;
        let names = SubjectAlternativeName::new()
            .ip("127.0.0.1")
            .build(&builder.x509v3_context(Some(&self.certificate), None))?;
        builder.append_extension(names)?;
        builder.sign(&self.key, MessageDigest::sha256())?;
        Ok([key.private_key_to_pem_pkcs8()?, builder.build().to_pem()?].concat())
    }
}

fn new_key() -> Result<PKey<Private>, ErrorStack> {
    PKey::from_ec_key(EcKey::generate(EcGroup::from_curve_name(Nid::X9_62_PRIME256V1)?.as_ref())?)
}

fn named(name: &str) -> Result<X509Name, ErrorStack> {
    let mut builder = X509Name::builder()?;
    builder.append_entry_by_nid(Nid::COMMONNAME, name)?;
    Ok(builder.build())
}

/// What all certificates have; valid for a day.
fn certificate(name: &str, key: &PKey<Private>) -> Result<X509Builder, ErrorStack> {
    let mut builder = X509::builder()?;
    builder.set_version(2)?; // counted from zero: X.509 v3
    let mut serial = BigNum::new()?;
    serial.rand(127, MsbOption::MAYBE_ZERO, false)?;
    builder.set_serial_number(serial.to_asn1_integer()?.as_ref())?;
    builder.set_subject_name(named(name)?.as_ref())?;
    builder.set_not_before(Asn1Time::days_from_now(0)?.as_ref())?;
    builder.set_not_after(Asn1Time::days_from_now(1)?.as_ref())?;
    builder.set_pubkey(key)?;
    Ok(builder)
}
