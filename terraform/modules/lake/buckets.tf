locals {
  buckets = toset(["lake", "artifacts"])
  names   = { for part in ["lake", "artifacts", "access"] : part => "${var.context.name}-${part}-${var.context.account_id}" }
  arns    = { for part, name in local.names : part => "arn:${var.context.partition}:s3:::${name}" }
}

resource "terraform_data" "key" {
  input = var.kms_key_arn
}

resource "aws_s3_bucket" "this" {
  for_each = local.buckets

  #checkov:skip=CKV_AWS_144:tables are rebuilt from their log, and a copy of half a commit in another region is no lake
  #checkov:skip=CKV_AWS_18:aws_s3_bucket_logging.this logs it wherever access_logs is set; a dev environment does without
  #checkov:skip=CKV2_AWS_62:nothing is started by an object; streams list, and Glue says what was committed
  bucket        = local.names[each.key]
  force_destroy = var.force_destroy

  # A destroy that stops at a bucket with data in it has not yet taken the key that reads it, nor the catalog.
  depends_on = [terraform_data.key, aws_glue_catalog_database.this]
}

resource "aws_s3_bucket_versioning" "this" {
  for_each = local.buckets

  bucket = aws_s3_bucket.this[each.key].id
  versioning_configuration {
    status = "Enabled"
  }
}

resource "aws_s3_bucket_server_side_encryption_configuration" "this" {
  for_each = local.buckets

  bucket = aws_s3_bucket.this[each.key].id
  rule {
    # A key for the bucket in place of one for each object: a stream writes small files all day.
    bucket_key_enabled = true
    apply_server_side_encryption_by_default {
      sse_algorithm     = "aws:kms"
      kms_master_key_id = var.kms_key_arn
    }
  }
}

resource "aws_s3_bucket_public_access_block" "this" {
  for_each = local.buckets

  bucket                  = aws_s3_bucket.this[each.key].id
  block_public_acls       = true
  block_public_policy     = true
  ignore_public_acls      = true
  restrict_public_buckets = true
}

resource "aws_s3_bucket_ownership_controls" "this" {
  for_each = local.buckets

  bucket = aws_s3_bucket.this[each.key].id
  rule {
    object_ownership = "BucketOwnerEnforced"
  }
}

locals {
  tls_only = {
    for part, arn in local.arns : part => [
      {
        Sid       = "NotWithoutTls"
        Effect    = "Deny"
        Principal = { AWS = "*" }
        Action    = "s3:*"
        Resource  = [arn, "${arn}/*"]
        Condition = { Bool = { "aws:SecureTransport" = "false" } }
      },
      {
        Sid       = "NotWithOldTls"
        Effect    = "Deny"
        Principal = { AWS = "*" }
        Action    = "s3:*"
        Resource  = [arn, "${arn}/*"]
        Condition = { NumericLessThan = { "s3:TlsVersion" = "1.2" } }
      },
    ]
  }
}

resource "aws_s3_bucket_policy" "this" {
  for_each = local.buckets

  bucket = aws_s3_bucket.this[each.key].id
  policy = jsonencode({ Version = "2012-10-17", Statement = local.tls_only[each.key] })

  # S3 refuses a policy and a block that are set at the same time.
  depends_on = [aws_s3_bucket_public_access_block.this]
}

resource "aws_s3_bucket_logging" "this" {
  for_each = var.access_logs ? local.buckets : toset([])

  bucket        = aws_s3_bucket.this[each.key].id
  target_bucket = aws_s3_bucket.access[0].id
  target_prefix = "${each.key}/"

  depends_on = [aws_s3_bucket_policy.access]
}
